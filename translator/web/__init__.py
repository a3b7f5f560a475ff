"""The translator as a web service: the form of EAGLE, an upload, and pages with the result.

Requests without a credential may translate graphs, hence three rules. Graphs are read, unrolled and partitioned in
processes of their own, which are killed when they exceed a limit of time or memory. Results are stored on disk under
random ids, and the oldest are deleted. Only configured managers are called, and only for requests with the token.

=====================  =================================================================================================
`translator_service`   The translator service: queues sources for worker processes and keeps the results
`translation_store`    Translations on disk, within limits of number and size
`deployer`             Deploys translated graphs to managers that are configured
`jobs`                 Worker processes of the translator: a bounded queue, a few processes at a time, each with a time
                       limit
`translation_process`  The process that translates one source: reads, checks, unrolls, partitions, and writes a report
`records`              The records of translations, the same on disk and in answers
`routes`               All routes of a translator: its pages, its part of our API, and DALiuGE's paths
`api_v1`               The translator's part of ``/api/v1``: translations, their graphs, and deploying them
`daliuge`              DALiuGE's own paths of a translator, for its tools; EAGLE's `gen_pgt` is among the pages
`forms`                Parses posted forms into bytes by field: ``application/x-www-form-urlencoded`` and
                       ``multipart/form- data``
`pages`                The translator's pages, complete without JavaScript: the form, the result of a translation, and
                       its deployment
`page_templates`       The templates of the translator's pages, ``translator/web/templates``, and the names that they
                       use
`launch_form`          The form that runs a translation
`log_routes`           The log of the translator itself
`export`               The process that writes a graph as DALiuGE's JSON, or for other programs, to standard output, in
                       blocks of drops
=====================  =================================================================================================
"""
