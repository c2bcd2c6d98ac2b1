"""Tables of trained models: many runs, hours in all, each kept when it is done. `make bench` leaves them out."""
