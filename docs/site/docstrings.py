"""Docstrings as they are written, made into what Sphinx reads.

They are written for `help()` and an editor: drawings are indented, and Reference and Deviations begin a paragraph. Without this
a drawing would be a quotation, with its lines run together.
"""

import re

#: What begins a paragraph that is set apart, as a heading of its own would be.
LEADS = ("Reference", "References", "Deviations")
LEAD = re.compile(rf"^({'|'.join(LEADS)})(?: (from [^:]+))?: (?=\S)")
PAPER = re.compile(r"\[(MESH|DEF|SSIJ|XHJ|PQP)\]")
BAR = re.compile(r"\|")
GUIDE = re.compile(r"`?docs/([\w/-]+)\.md`?")
CODE = re.compile(r"(`+[^`]*`+)")
#: A name to look up: "See WaitingJoin", "hr.load".
BARE = re.compile(r"(?<![\w.])(See |)((?<=See )[A-Z]\w+|hr\.\w+)(?![\w(=])")
DRAWING = ".. code-block:: text"
UNDERLINE = re.compile(r"^-{3,}$")
FIELD = re.compile(r"^(Example|Examples|Args|Parameters|Returns|Raises|Yields|Attributes|Reference|References):$")


def indent_of(line):
    """The number of spaces that a line begins with."""
    return len(line) - len(line.lstrip())


def mark_drawings(lines):
    """Lines in which an indented block after a blank line is a literal block.

    Parts of a list and descriptions of parameters are indented too, but directly below what they belong to.
    """
    made, level, drawing = [], 0, None
    for number, line in enumerate(lines):
        if line.strip():
            if drawing is not None and indent_of(line) < drawing:
                drawing = None
            after_blank = number > 0 and not lines[number - 1].strip()
            if drawing is None and after_blank and indent_of(line) > level and not in_section(lines, number):
                drawing = indent_of(line)
                made += [" " * level + DRAWING, ""]
            if drawing is None:
                level = indent_of(line)
        made.append(line)
    return made


def in_section(lines, number):
    """Whether a line lies in a section with a heading, such as Parameters, where indentation means something else."""
    return any(UNDERLINE.match(line.strip()) or FIELD.match(line.strip()) for line in lines[:number])


def mark_leads(lines):
    """Lines in which "Reference: ..." and "Deviations: ..." are sections."""
    made = []
    for line in lines:
        found = LEAD.match(line)
        if found:
            of = f"{found[2][0].upper()}{found[2][1:]}: " if found[2] else ""
            said = of + line[found.end() :]
            made += ["", found[1], "-" * len(found[1]), said[0].upper() + said[1:] if said[:2].isalpha() else said]
        else:
            made.append(line)
    return made


def end_parameters(lines):
    """Lines in which a paragraph after the parameters is a section: else its lines would be taken for parameters."""
    made, inside = [], False
    for number, line in enumerate(lines):
        below = lines[number + 1] if number + 1 < len(lines) else ""
        if UNDERLINE.match(below.strip()):
            inside = line.strip() in ("Parameters", "Attributes", "Returns", "Raises")
        first = number > 0 and not lines[number - 1].strip() and line.strip() and not indent_of(line)
        if inside and first and not UNDERLINE.match(below.strip()) and indent_of(below) == 0:
            made += ["Notes", "-----"]
            inside = False
        made.append(line)
    return made


def mark_sentence(text):
    """Words outside of code, with what they refer to."""
    return PAPER.sub(r":doc:`[\1] </reproduction/index>`", BAR.sub(r"\\|", BARE.sub(r"\1`\2`", text)))


def mark_prose(lines):
    """Lines in which [MESH] leads to the list of papers, and |S| is a size and no substitution; drawings and examples stay."""
    made, drawing, example = [], None, False
    for line in lines:
        if line.strip():
            if drawing is not None and indent_of(line) <= drawing:
                drawing = None
            example = example or line.lstrip().startswith(">>>")
            if drawing is None and not example:
                line = GUIDE.sub(r":doc:`/\1`", line)
                # every second piece is code
                pieces = [piece if i % 2 else mark_sentence(piece) for i, piece in enumerate(CODE.split(line))]
                line = "".join(pieces)
            if line.lstrip().startswith(DRAWING):
                drawing = indent_of(line)
        else:
            example = False
        made.append(line)
    return made


def process(app, what, name, obj, options, lines):
    """Mend one docstring; before napoleon, which reads the sections."""
    lines[:] = mark_prose(end_parameters(mark_leads(mark_drawings(list(lines)))))


#: Classes whose objects are made by their class methods, and not by calling them.
MADE_BY_METHODS = {"headrace.Relation"}


def process_signature(app, what, name, obj, options, signature, returned):
    """Leave out a constructor that nobody calls."""
    return ("", None) if name in MADE_BY_METHODS else None


def setup(app):
    """Come before napoleon."""
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process, priority=100)
