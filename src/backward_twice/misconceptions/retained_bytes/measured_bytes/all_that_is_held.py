# "What the graph holds is all that it refers to."  Weights and input are there without it.
def measured_bytes(network, x):
    return snapshot(network(x).mean(), inputs=[x]).held.total
