from __future__ import annotations

from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=40)

    class Meta:
        app_label = "shop"


class Order(models.Model):
    number = models.IntegerField(unique=True)
    #: Checked at COMMIT, where a database can wait so long.
    customer = models.ForeignKey(Customer, null=True, on_delete=models.CASCADE)

    class Meta:
        app_label = "shop"
