"""No commit ever happens in a TestCase, and no worker runs: drain() delivers what the test has written."""

from contextlib import redirect_stdout
from io import StringIO

from django.db import IntegrityError, transaction
from django.test import TestCase

from aftercommit.django import outbox
from shop.models import Order


class OrderTest(TestCase):
    def test_an_order_is_announced(self) -> None:
        for number, path in enumerate(("/orders/", "/async-orders/"), start=7):
            self.client.post(path, {"number": number, "customer": "ada"})
        with redirect_stdout(StringIO()) as said:
            self.assertEqual(outbox.drain().delivered, 2)
        self.assertEqual(said.getvalue(), "receipt for order 7 to ada\nreceipt for order 8 to ada\n")

    def test_a_refused_order_is_not(self) -> None:
        Order.objects.create(number=7, customer="ada")
        with self.assertRaises(IntegrityError), transaction.atomic():
            self.client.post("/orders/", {"number": 7, "customer": "bob"})
        self.assertEqual(outbox.drain().delivered, 0)
