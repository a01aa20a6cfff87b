"""Who should import whom: fit on a real directed graph, rate links, embed a module that training never saw.

python examples/links_of_a_network.py [installed package]
"""

import sys

import duplex_embed as dx
import torch

package = sys.argv[1] if len(sys.argv) > 1 else "networkx"
graph = dx.datasets.import_graph(package)  # or dx.as_graph(your networkx graph), dx.read_konect("out.file"), ...
print(f"{package}: {graph.num_nodes} modules, {graph.num_edges} imports, {graph.one_way()} of them one-way")

split = dx.split_edges(graph, seed=0)
model = dx.DUPLEX(dim=32, random_state=0).fit(split.train, split.val, epochs=150)
print(dx.evaluate(model.calibrate(split.val), split.test, slices=("low",)))

hub = int(graph.degrees()[0].argmax())
targets, sure = model.embed().top_targets(torch.tensor([hub]), k=3)
print(f"what {graph.names[hub]} would import: " + ", ".join(graph.names[v] for v in targets[0].tolist()))

# one more module, which imports the hub: no training needed
edges = torch.cat((graph.edge_index, torch.tensor([[graph.num_nodes], [hub]])), 1)
larger = dx.as_graph(edges, num_nodes=graph.num_nodes + 1)
reverse, forward, both, none = model.predict_edges(torch.tensor([[graph.num_nodes, hub]]), data=larger)[0]
print(f"the new module and {graph.names[hub]}: forward {forward:.2f}, reverse {reverse:.2f}, both {both:.2f}")
