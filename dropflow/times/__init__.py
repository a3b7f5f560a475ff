"""Times of attempts: records, and what follows from them. Everything here is pure but `records.read_times`.

`records` describes one attempt in 48 bytes, `octets` sends them, and `attempts` has those of a session as columns. From
these, `by_template` makes statistics, `lanes` the rows of a timeline, `waits` what each attempt waited for, the
critical path as executed and the slack, and `gaps` why workers were idle. `analysis` is all of that together.
"""
