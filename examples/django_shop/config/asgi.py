"""For uvicorn and others: whoever writes an event here also delivers it, right after its commit."""

import os

from aftercommit.django.asgi import get_asgi_application  # instead of django.core.asgi

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_asgi_application()
