"""Write a table of squares."""

import sys
from pathlib import Path

source, header = map(Path, sys.argv[1:])
squares = [int(line) ** 2 for line in Path("csrc/numbers.txt").read_text().split()]
header.write_text(f'#pragma once\n\n#include "type.h"\n\nextern const Number squares[{len(squares)}];\n')
source.write_text(f'#include "table.h"\n\nconst Number squares[{len(squares)}] = {{{", ".join(map(str, squares))}}};\n')
