# "A step costs its output."  The GRU saves its gates, too.
def steps_that_fit(gru, batch, budget):
    return budget // (4 * batch * gru.hidden_size * gru.num_layers)
