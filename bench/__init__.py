"""How near Holdfast comes to what the database itself can do, and how its worker does beside others:
`make bench`.

Every figure has a counterpart from the same run: hand-written SQL on the same driver, the same
tables and indexes, and the same durability; or another library's worker with its best settings, on
the same disk. A rate alone says more about the machine.
"""
