# litebert serve on port 8000, with the packaged model unless others are named; see docs/serving.md.
FROM python:3.11-slim
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE /opt/source/
COPY src /opt/source/src
RUN pip install --no-cache-dir -c /opt/source/constraints.txt torch
RUN pip install --no-cache-dir -c /opt/source/constraints.txt "/opt/source[serve,fast]"
RUN rm -r /opt/source
USER nobody
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/ready')"]
ENTRYPOINT ["litebert", "serve", "--host", "0.0.0.0"]
