"""`litebert serve` without a MODEL."""


def test_without_a_model_the_packaged_one_is_served(run_server) -> None:
    with run_server() as server:
        server.wait_for_line("litebert is ready")
        assert server.lines[0] == "no MODEL given: serving the packaged model as litebert\n"
        assert [one["id"] for one in server.ask("/v1/models").json["data"]] == ["litebert"]
        assert server.ask("/v1/embed", {"texts": ["a"]}).status == 200
