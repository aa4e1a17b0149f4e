# Built from the repository root: docker build -t gpusched:0.2.0 .
# Give BASE by digest when the image must be reproducible.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements-run.lock requirements-scenarios.lock requirements.lock ./
# Only what runs, every archive checked against its hash, and no installer: a venv with pip has the
# setuptools of its Python too, which no lock names. The build backend, which does not reach the
# final image, is installed beside it from its own entry of the development lock.
RUN python -m venv --without-pip /opt/gpusched \
    && python -m pip --python /opt/gpusched/bin/python install --require-hashes --only-binary :all: -r requirements-run.lock \
    && awk '/^[A-Za-z]/ {take = /^setuptools==/} take' requirements.lock > /tmp/backend.lock \
    && python -m venv /opt/backend \
    && /opt/backend/bin/pip install --require-hashes --only-binary :all: -r /tmp/backend.lock
COPY pyproject.toml setup.py README.md LICENSE NOTICE ./
COPY gpusched gpusched
COPY plugins plugins
COPY manifests manifests
COPY conf conf
RUN /opt/backend/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && python -m pip --python /opt/gpusched/bin/python install --no-deps --no-index /tmp/wheel/*.whl

# The daemon's environment with the extras devcluster and lab; what the daemon's image holds does not
# depend on it.
FROM build AS build-scenarios
COPY .ci/distributions .ci/distributions
COPY kwok-scenarios kwok-scenarios
RUN /opt/backend/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/extras .ci/distributions/devcluster .ci/distributions/lab \
    && python -m pip --python /opt/gpusched/bin/python install --require-hashes --only-binary :all: -r requirements-scenarios.lock \
    && python -m pip --python /opt/gpusched/bin/python install --no-deps --no-index /tmp/extras/*.whl

# For CI: plays scenarios on an embedded cluster. docker build --target scenarios -t gpusched-scenarios:0.2.0 .
FROM ${BASE} AS scenarios
LABEL org.opencontainers.image.title="gpusched-scenarios" \
      org.opencontainers.image.description="Plays scheduling scenarios with the whole gpusched daemon" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build-scenarios /opt/gpusched /opt/gpusched
ENV PATH=/opt/gpusched/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
WORKDIR /work
ENTRYPOINT ["gpusched"]
CMD ["scenario", "run", "/work"]

FROM ${BASE}
LABEL org.opencontainers.image.title="gpusched" \
      org.opencontainers.image.description="A gang scheduler for AI jobs that runs beside kube-scheduler" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gpusched /opt/gpusched
# Byte code is there since pip made it, so nothing is written next to it; /tmp is the only place the
# daemon writes to, and the Deployment mounts an emptyDir there.
ENV PATH=/opt/gpusched/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["gpusched"]
CMD ["run"]
