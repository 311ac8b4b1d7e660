"""The evidence about an error: a class for each family whose text leaves the cause open.

Properties of these classes have the names of :data:`gradtrace.explaining.causes.FACTS`; most are
computed when a criterion needs them. They decide nothing.
"""
