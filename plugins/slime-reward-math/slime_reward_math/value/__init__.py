"""What trees are worth: exact numbers, rigorous balls, sample points, units, sets of reals."""
