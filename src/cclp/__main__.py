"""``python -m cclp``."""

from cclp.cli import main

if __name__ == "__main__":
    main()
