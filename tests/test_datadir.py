from encgraph import datadir


def test_root_holds_the_traffic_tables():
    assert (datadir.root() / "traffic" / "servegen.json").is_file()
