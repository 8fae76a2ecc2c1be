import multiprocessing
from dataclasses import replace
from pathlib import Path

from slime_core.catalog import Catalog
from slime_core.roles import DataSource, DataSourceSetup, DataSourceSpec, PromptFile, Settings
from slime_testing import DataSourceContract


def test_a_fork_of_multiprocessing_leaves_the_prompts_where_they_are() -> None:
    read = list[PromptFile]()
    spec = Catalog.discover().find("data_source", "slime-core/prompts").spec
    assert isinstance(spec, DataSourceSpec)

    def factory(settings: Settings, setup: DataSourceSetup) -> DataSource:
        read.extend(setup.prompts)
        return spec.factory(settings, setup)

    class Source(DataSourceContract):
        __test__ = False
        choice = replace(spec, factory=factory)

    Source().test_the_factory_builds_a_data_source()
    child = multiprocessing.get_context("fork").Process(target=print)
    child.start()
    child.join()
    assert read
    assert all(Path(each.path).is_file() for each in read)
