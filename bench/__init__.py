"""How near Holdfast comes to what the database itself can do: `make bench`.

Every figure has a counterpart from the same run: hand-written SQL on the same driver, the same
tables and indexes, and the same durability. A rate alone says more about the machine.
"""
