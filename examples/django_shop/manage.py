"""A shop in Django whose orders are announced by an outbox.

python manage.py migrate
python manage.py test                    events in TestCase, without workers
python manage.py runserver               delivers what it writes, right after the commit (see config/wsgi.py)
gunicorn --workers 2 --preload config.wsgi
uvicorn --workers 2 config.asgi:application
python manage.py aftercommit run         a worker of its own, beside any number of servers
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    execute_from_command_line(sys.argv)
