"""What is known around an error: one class for each family whose text leaves the cause open.

The properties of these classes have the names of :data:`gradtrace.explaining.causes.EVIDENCE`; each
is looked for when a rule asks.  They read the graph as it stands when backward has just failed,
what the watch recorded, and the variables of the program.  They decide nothing.
"""
