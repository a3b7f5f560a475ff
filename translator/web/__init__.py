"""The translator as a web service: the form that EAGLE posts, an upload, and a page that answers.

A server that many people reach and that reads what strangers send, hence three rules. Graphs are read, unrolled and
partitioned in processes of their own (`worker`), with limits on time and memory, killed when they overstep. Results
lie on disk under ids that nobody guesses (`store`), and the oldest go. Only known managers are ever called, and only
for who has the token (`deploying`). Read `service` first, then `routes`.
"""
