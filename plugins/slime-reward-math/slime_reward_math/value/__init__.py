"""Values of trees: exact numbers, rigorous balls, sample points, units, sets of reals."""
