"""The loss of the paper, Eq. 2 to 9: graph, label propagation, Markov chains. Needs torch only."""
