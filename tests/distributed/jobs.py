"""Run jobs, [[VERB, ARGUMENTS]...] in JSON, one after another as one of several processes."""

import json
import sys

import litebert

if __name__ == "__main__":
    for verb, arguments in json.loads(sys.argv[1]):
        run = getattr(litebert, verb)(**arguments, quiet=True)
        if run.exit_code:
            sys.exit(run.exit_code)
