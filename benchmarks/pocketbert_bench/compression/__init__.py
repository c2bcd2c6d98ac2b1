"""`compress`: from labelled data and a limit to the best verified bundle within it."""
