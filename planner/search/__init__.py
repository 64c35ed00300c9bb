"""Search methods behind one ask/tell interface, and the loop that drives them."""
