"""WSGI entry point: Django alone, which serves calls and pages in the threads of any WSGI server, without the front.

Does not come up on a database that would let wrong balances through.
"""

import os
import sys

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ledger_project.settings")
application = get_wsgi_application()

from ledger.errors import UnsafeDatabase  # noqa: E402
from ledger_project.serving.bootstrap import refuse_unsafe_database  # noqa: E402

try:
    refuse_unsafe_database()
except UnsafeDatabase as unsafe:
    sys.exit(f"The web process does not start: this database is refused. {unsafe}.")
