"""A slow and obvious run of a plan: the engine's core decides, and time is virtual.

It shares no code with the simulation of the planner. Rates of moves are computed anew for each step of time.
"""

from fractions import Fraction

from dropflow.execution.decisions.core import Core
from dropflow.execution.decisions.events import Assemble, Assembled, Begin, Event, Finished, Run
from dropflow.graph.physical import PhysicalGraph
from dropflow.graph.templates import Kind, ResourceNeeds
from dropflow.runners.capacity import Capacity
from dropflow.states import DropState
from translator.plan.machines import Machines
from translator.plan.task_graph import work_of

Times = dict[int, Fraction]


class CoreOnVirtualTime:
    """Runs a graph whose parts are on machines."""

    def __init__(self, graph: PhysicalGraph, machines: Machines, priority: list[int] | None) -> None:
        self.graph, self.machines, self.priority = graph, machines, priority
        self.core = Core(graph)
        self.work = work_of(graph)
        self.now = Fraction(0)
        self.home = graph.part.tolist()
        self.is_app = [graph.templates[row].kind is Kind.APP for row in graph.template.tolist()]
        self.running: dict[int, Fraction] = {}  # application: its end
        self.asked: dict[int, int] = {}  # application that the core wants to run: its attempt
        self.ready_since: Times = {}
        self.moves: dict[tuple[str, int, int, int], list[Fraction]] = {}  # latency and bytes that are left
        self.arrived: set[tuple[str, int, int, int]] = set()
        self.starts: Times = {}
        self.ends: Times = {}
        self.unassembled: set[int] = set()
        self.to_assemble: set[int] = set()
        self.completed: Times = {}

    def run(self) -> Fraction:
        """Return the time of completion."""
        self.handle([Begin()])
        while True:
            self.settle()
            steps = [end - self.now for end in self.running.values()]
            rates = self.rates()
            for key, (latency, left) in self.moves.items():
                if latency:
                    steps.append(latency)
                elif key in rates:
                    steps.append(left / rates[key])
            if not steps:
                return max(self.completed.values(), default=Fraction(0))
            self.advance(min(steps), rates)

    def advance(self, step: Fraction, rates: dict[tuple[str, int, int, int], Fraction]) -> None:
        """Let time pass; everything that ends then ends at once."""
        self.now += step
        for key, pair in list(self.moves.items()):
            if pair[0]:
                pair[0] -= step
            else:
                pair[1] -= rates[key] * step
            if not pair[0] and pair[1] <= 0:
                del self.moves[key]
                self.arrived.add(key)
        done = [app for app, end in self.running.items() if end <= self.now]
        for app in done:
            del self.running[app]
            self.ends[app] = self.now
        self.handle([Finished(app, self.asked.pop(app)) for app in done])

    def handle(self, events: list[Event]) -> None:
        """Tell the core what happened, and note what it wants."""
        while events:
            following: list[Event] = []
            for action in self.core.handle(events):
                if isinstance(action, Run):
                    if self.is_app[action.drop]:
                        self.asked[action.drop] = action.attempt
                    else:
                        following.append(Finished(action.drop, action.attempt))
                elif isinstance(action, Assemble):
                    following.append(Assembled(action.drop))
            events = following

    def settle(self) -> None:  # noqa: C901, PLR0912 - a list of rules, one after the other
        """Do all that happens now: data are complete, moves begin, and applications start."""
        changed = True
        while changed:
            changed = False
            states = self.core.drops.states
            for drop in range(self.graph.drops):
                if self.is_app[drop] or drop in self.completed or states[drop] != DropState.COMPLETED:
                    continue
                keys = self.inward(drop)
                for key in keys:
                    # The move from a node begins when all its producers there have ended: before the data drop is
                    # complete, if others still write. The core completes it when the last one has ended.
                    changed |= self.begin(key)
                if all(key in self.arrived for key in keys):
                    self.completed[drop] = self.now
                    changed = True
                    for node in {self.home[app] for app in self.after(drop)} - {self.home[drop]}:
                        self.begin(("out", drop, self.home[drop], node))
            for drop in range(self.graph.drops):
                if not self.is_app[drop]:
                    for key in self.inward(drop):
                        if all(app in self.ends for app in self.before(drop) if self.home[app] == key[2]):
                            changed |= self.begin(key)
        for app in self.asked:
            if app not in self.starts and app not in self.ready_since and all(map(self.is_here(app), self.before(app))):
                self.ready_since[app] = self.now
        for node in range(len(self.machines.nodes)):
            self.admit(node)
        for app, end in self.ends.items():
            self.completed.setdefault(app, end)

    def is_here(self, app: int):  # noqa: ANN201 - a predicate
        """Return whether a data drop is on the node of an application."""
        return lambda data: (
            data in self.completed
            and (self.home[data] == self.home[app] or ("out", data, self.home[data], self.home[app]) in self.arrived)
        )

    def inward(self, drop: int) -> list[tuple[str, int, int, int]]:
        """Return the moves by which a data drop gets what is written on other nodes."""
        nodes = {self.home[app] for app in self.before(drop)} - {self.home[drop]}
        return [("in", drop, node, self.home[drop]) for node in sorted(nodes)]

    def begin(self, key: tuple[str, int, int, int]) -> bool:
        """Begin a move, unless it has begun."""
        if key in self.moves or key in self.arrived:
            return False
        _, drop, source, target = key
        pair = [Fraction(self.machines.latency(source, target)), Fraction(float(self.work.volume[drop]))]
        if any(pair):
            self.moves[key] = pair
        else:
            self.arrived.add(key)
        return True

    def admit(self, node: int) -> None:
        """Start applications in the order of their priorities, until one does not fit.

        One that waits for GPUs holds up only those that need GPUs, too.
        """
        capacity = self.machines.nodes[node]
        ready = [app for app in self.ready_since if self.home[app] == node and app not in self.starts]
        ready.sort(key=lambda app: (-self.priority[app] if self.priority else self.ready_since[app], app))
        waits_for_gpus = False
        for app in ready:
            rule = Capacity(capacity.cores, capacity.memory)  # that of the runners
            taken = 0.0
            for other in self.running:
                if self.home[other] == node:
                    rule.take(self.admitted(rule, other, capacity.gpus))
                    taken += min(self.needs(other).gpus, capacity.gpus)
            gpus = min(self.needs(app).gpus, capacity.gpus)
            waits_for_gpus |= taken + gpus > capacity.gpus
            if gpus and waits_for_gpus:
                continue
            if not rule.fits(self.admitted(rule, app, capacity.gpus)):
                break
            self.starts[app] = self.now
            seconds = Fraction(float(self.work.seconds[app])) / Fraction(capacity.speed)
            self.running[app] = self.now + seconds

    def needs(self, app: int) -> ResourceNeeds:
        """Return what an application declares."""
        return ResourceNeeds(int(self.work.cpus[app]), float(self.work.memory[app]), int(self.work.gpus[app]))

    def admitted(self, rule: Capacity, app: int, gpus: float) -> ResourceNeeds:
        """Return what an application takes; all processors if its node has too few GPUs."""
        needs = self.needs(app)
        return rule.admitted(needs if needs.gpus <= gpus else needs._replace(cpus=rule.cpus + 1))

    def rates(self) -> dict[tuple[str, int, int, int], Fraction]:
        """Return the max-min fair rates of the moves whose latency is over."""
        active = [key for key, pair in self.moves.items() if not pair[0]]
        if not self.machines.contention:
            return {key: Fraction(self.machines.bandwidth(key[2], key[3])) for key in active}
        links: dict[tuple[str, object], Fraction] = {}
        paths = {}
        for key in active:
            first, last = (self.machines.nodes[node].island for node in key[2:])
            paths[key] = [("from", key[2]), ("to", key[3])]
            links |= {link: Fraction(self.machines.links.bandwidth) for link in paths[key]}
            if first != last and self.machines.between_islands is not None:
                gates = [("leaves", first), ("enters", last)]
                paths[key] += gates
                links |= {gate: Fraction(self.machines.between_islands.bandwidth) for gate in gates}
        rates: dict[tuple[str, int, int, int], Fraction] = {}
        while len(rates) < len(active):
            shares = {}
            for link, capacity in links.items():
                used = sum((rates.get(key, Fraction(0)) for key in active if link in paths[key]), Fraction(0))
                users = [key for key in active if link in paths[key] and key not in rates]
                if users:
                    shares[link] = (capacity - used) / len(users)
            smallest = min(shares.values())
            full = {link for link, share in shares.items() if share == smallest}
            rates |= {key: smallest for key in active if key not in rates and full & set(paths[key])}
        return rates

    def before(self, drop: int) -> list[int]:
        """Return the predecessors of a drop."""
        edges = self.graph.predecessors
        return edges.neighbour[edges.ptr[drop] : edges.ptr[drop + 1]].tolist()

    def after(self, drop: int) -> list[int]:
        """Return the successors of a drop."""
        edges = self.graph.successors
        return edges.neighbour[edges.ptr[drop] : edges.ptr[drop + 1]].tolist()
