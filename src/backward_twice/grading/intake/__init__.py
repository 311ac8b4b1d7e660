"""Read what students handed in, and trust none of it.

===================  =======================================================================
:mod:`.limited`      a process with limits of time and memory, in which all of this is done
:mod:`.unpacking`    a download's files are listed and copied, archives are opened
:mod:`.submissions`  one submission's folder is inspected and its notebook is read
:mod:`.rebuild`      the answer cells' sources are taken out of the notebook, nothing else
:mod:`.reading`      both of these, in the process with limits
===================  =======================================================================
"""
