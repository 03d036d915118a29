# Serve models from the volume mounted at /models:
#   docker build -t xmtc .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/xmtc-demo:/models" -e XMTC_API_KEY=… xmtc /models/model
FROM python:3.11-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/xmtc \
    && /opt/xmtc/bin/pip install --no-cache-dir -c constraints.txt ".[server]"

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 xmtc
COPY --from=build /opt/xmtc /opt/xmtc
ENV PATH=/opt/xmtc/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/xmtc
# Compiled for the processor that builds the image; another one compiles once more, when a container starts.
RUN xmtc doctor --compile
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["xmtc", "serve", "--host", "0.0.0.0", "--port", "8000"]
