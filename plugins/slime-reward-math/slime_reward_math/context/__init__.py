"""What a response says around its box: a formula that goes on, words that change the box, answers stated later."""
