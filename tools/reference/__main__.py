import sys
from pathlib import Path

from tools.reference import write

write(Path(sys.argv[1]))
