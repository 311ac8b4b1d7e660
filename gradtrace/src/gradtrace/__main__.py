"""``python -m gradtrace``: see :mod:`gradtrace.cli`."""

from gradtrace.cli import main

if __name__ == "__main__":
    main()
