# Pawl in one small image: every service of docker-compose.yml runs it with another command.
ARG NODE_IMAGE=node:24-bookworm-slim

# Everything that builds; nothing of it but its results reaches the image.
FROM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY scripts scripts
COPY bin bin
COPY schemas schemas
COPY dashboards dashboards
COPY src src
COPY examples/demo examples/demo
RUN node scripts/pack.mjs prepare

# What runs, and the list of what it is made of.
FROM ${NODE_IMAGE} AS runtime
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
COPY scripts/pack.mjs scripts/
# Optional packages are part of the image, except LanceDB. The lock file has the version and the digest of each.
RUN node scripts/pack.mjs image \
 && npm install --ignore-scripts --omit=dev --no-audit --no-fund \
 && npm sbom --package-lock-only --omit=dev --sbom-format=spdx > sbom.spdx.json

FROM ${NODE_IMAGE}
LABEL org.opencontainers.image.title="Pawl" \
      org.opencontainers.image.description="Runs an AI agent's tool calls on a fleet of workers, each call once." \
      org.opencontainers.image.licenses="MIT"
# The process tools' sandbox and the search tools' engine. Where packages cannot be fetched: --build-arg TOOL_PACKAGES=
ARG TOOL_PACKAGES="bubblewrap ripgrep"
RUN if [ -n "${TOOL_PACKAGES}" ]; then \
      apt-get update && apt-get install -y --no-install-recommends ${TOOL_PACKAGES} && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /opt/pawl
COPY --from=runtime /build/node_modules node_modules
COPY --from=runtime /build/sbom.spdx.json sbom.spdx.json
COPY --from=build /build/package.json package.json
COPY --from=build /build/bin bin
COPY --from=build /build/schemas schemas
COPY --from=build /build/dashboards dashboards
COPY --from=build /build/dist dist
COPY docker docker
COPY LICENSE ./
# A tools file that is mounted anywhere finds `pawl` and `zod`. The folders are those that volumes are mounted on: a new
# volume takes their owner.
RUN ln -s /opt/pawl node_modules/pawl \
 && ln -s /opt/pawl/node_modules /node_modules \
 && ln -s /opt/pawl/bin/pawl.mjs /usr/local/bin/pawl \
 && install -d -o node -g node -m 0750 /var/lib/pawl /workspaces /run/pawl \
 && install -d -o node -g node -m 0755 /run/pawl-redis
USER node
ENV NODE_ENV=production PAWL_DATA_DIR=/var/lib/pawl PAWL_WORKSPACE_ROOT=/workspaces
WORKDIR /workspaces
EXPOSE 7070 9464
ENTRYPOINT ["pawl"]
CMD ["serve"]
