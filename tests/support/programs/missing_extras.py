"""What is said where Headrace is installed without extras, by every public name and by what needs a library when it is called.

The libraries of all extras are not found, as where they are not installed. Prints the refusals as JSON.
"""

import json
import sys

import pyarrow as pa

import headrace as hr


def similar_names():
    from headrace.progressive import ProgressiveJoin

    op = ProgressiveJoin(hr.all_of(hr.equal("k"), hr.edit_distance("name", at_most=1)), memory="1MiB")
    return [list(op.insert(side, pa.record_batch({"k": [1], "name": ["ada"]}))) for side in ("left", "right")]


CALLS = {
    "a Delta table": lambda: hr.delta("nowhere").latest(),
    "a table of PostgreSQL": lambda: hr.postgresql("sales", url="postgresql://localhost/shop", by="t").latest(),
    "similar names": similar_names,
}


def refusal(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def main():
    from without_extras import hide_extras  # beside this program, which is run and not imported

    hide_extras()
    calls = {f"hr.{name}": (lambda name=name: getattr(hr, name)) for name in hr.__all__} | CALLS
    refused = {what: refusal(call) for what, call in calls.items()}
    sys.stdout.write(json.dumps({what: said for what, said in refused.items() if said}, indent=1))


if __name__ == "__main__":
    main()
