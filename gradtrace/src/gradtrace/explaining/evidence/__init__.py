"""The evidence about an error: a class for each family whose text leaves the cause open.

Properties of these classes have the names of :data:`gradtrace.explaining.causes.FACTS`; most are
computed when a criterion needs them. They read the graph as the failed backward call left it, the
record of the watch, and the program's variables. They decide nothing.
"""
