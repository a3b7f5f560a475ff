"""Plans: the part of each drop, and the node that runs each part.

A judge simulates an assignment on virtual time, or measures the bytes that it moves. Algorithms make assignments, and
the best one within the limits is taken.

=================  ====================================================================================================
`registry`         The algorithms by name, and the stage of a translation that runs one
`auto`             The planner `auto`: tries the algorithms that suit the size of a graph, improves the best plan, and
                   gives a reason
`metis`            Partition with METIS (Karypis and Kumar 1998), through pymetis
`kahypar`          Partition of the hypergraph of data with Mt-KaHyPar (Gottesbueren et al. 2021)
`heft`             The planners by list scheduling: `heft` and `lookahead`, and `min_parts` for few nodes under a
                   deadline
`refine`           Improves a plan: moves tasks and groups of tasks, and joins the best of two plans
`quality`          The quality of a partition: cut edges, moved volume and balance, for all partitioners
`judge`            Runs an assignment on virtual time: the start and end of each application, and of moves of data
`task_graph`       The graph of applications that planners work on: data drops become edges and nets, and follow their
                   applications
`machines`         The machines that a plan is made for: nodes of different capacity, and the links between them; from
                   a file, or as the managers report them
`measured`         Weights of drops as earlier runs have measured them, in place of the estimates of a graph;
                   and their files
`timeline`         Simulated runs as pictures, and as traces for Perfetto (https://ui.perfetto.dev)
`kahypar_process`  The process in which Mt-KaHyPar runs: it reads a hypergraph from standard input and writes
                   partitions, as JSON
`move_bound`       A lower bound of the completion time that counts moves, and when work can begin and must be done
`planner`          What all planners share: their signature, what they decide, weights of drops and edges, islands and
                   nodes of parts
=================  ====================================================================================================
"""
