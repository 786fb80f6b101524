# syntax=docker/dockerfile:1
# The image of the gateway: no shell, no package manager, not root, nothing written but in /data. How to run it: docs/deploying.md.
#
# Both bases are named by the digest of their index, which is that of both architectures. For newer ones:
#   docker buildx imagetools inspect --format '{{.Manifest.Digest}}' gcr.io/distroless/cc-debian12:nonroot
ARG NODE_IMAGE=node:24.21.0-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f

FROM ${NODE_IMAGE} AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json tsconfig.types.json ./
COPY certs certs
COPY db db
COPY plugins plugins
COPY proxy proxy
COPY scripts scripts
RUN npm run build
# The Node that the gateway runs on is the lock file's, whose digest npm has checked: the one that all tests ran on.
RUN npm ci --omit=dev \
 && mv node_modules/node-linux-*/bin/node /usr/local/bin/gateway-node \
 && rm -rf node_modules/node-linux-* node_modules/.bin \
 && mkdir -m 0700 /data /archive

FROM ${BASE_IMAGE}
ARG VERSION=0.7.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Sallyport" \
      org.opencontainers.image.description="A zero-trust gateway in front of LLM providers and MCP tools." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /usr/local/bin/gateway-node /usr/local/bin/node
WORKDIR /app
COPY --from=build /src/package.json ./package.json
COPY --from=build /src/node_modules ./node_modules
COPY --from=build /src/dist ./dist
COPY --from=build /src/plugins/config ./plugins/config
COPY deploy/postgres ./deploy/postgres
COPY docs/verify.py ./docs/verify.py
COPY LICENSE ./LICENSE
COPY --from=build --chown=65532:65532 /data /data
# Empty: where a volume for the archive is mounted (docs/operating.md#archive).
COPY --from=build --chown=65532:65532 /archive /var/lib/sallyport/archive
ENV PATH=/usr/local/bin \
    MCP_PROXY_LISTEN=0.0.0.0:9443 \
    MCP_PROXY_DATA_DIR=/data \
    MCP_PROXY_PLUGINS_DIR=/app/plugins/config
VOLUME ["/data"]
EXPOSE 9443
USER 65532:65532
STOPSIGNAL SIGTERM
# By the control socket: no port, no certificate, no secret, and no flood of handshakes in its way.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
  CMD ["/usr/local/bin/node", "--disable-sigusr1", "/app/dist/scripts/sallyport.js", "health"]
ENTRYPOINT ["/usr/local/bin/node", "--disable-sigusr1"]
CMD ["--max-semi-space-size=16", "/app/dist/proxy/main.js"]
