"""For servers: whoever writes an event here also delivers it, right after its commit."""

import atexit
import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()

from aftercommit.django import outbox  # noqa: E402  (the apps have to be loaded first)

outbox.start()
atexit.register(outbox.close)
