"""For gunicorn and others: whoever writes an event here also delivers it, right after its commit."""

import os

from aftercommit.django.wsgi import get_wsgi_application  # instead of django.core.wsgi

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()
