"""Context of a box in a response: the formula around it, words that change it, answers stated later."""
