#!/bin/sh
# Makes the secrets of deploy/compose.yaml where they are missing, each a file that its one reader may read. Run it as
# root: compose hands a file to a container with the owner and mode that it has here. Back key_passphrase up, elsewhere
# than the database: without it nobody unseals the CA.
set -eu
umask 077
directory=$(cd "$(dirname "$0")/.." && pwd)/secrets
gateway=65532
postgres=999
prometheus=65534
mkdir -p "$directory"

# keep NAME OWNER: writes standard input into a file that does not exist yet.
keep() {
  [ -e "$directory/$1" ] && { cat >/dev/null; return; }
  cat >"$directory/$1.new"
  chown "$2:$2" "$directory/$1.new"
  chmod 0400 "$directory/$1.new"
  mv "$directory/$1.new" "$directory/$1"
}
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

random | keep database_superuser "$postgres"
for role in owner gateway; do
  random | keep "database_$role" "$postgres"
  printf 'postgres://sallyport_%s:%s@database/sallyport' "$role" "$(cat "$directory/database_$role")" |
    keep "database_url_$role" "$gateway"
done
random | keep key_passphrase "$gateway"
random | keep metrics_token "$gateway"
keep metrics_token_prometheus "$prometheus" <"$directory/metrics_token"
[ -e "$directory/providers.env" ] || : >"$directory/providers.env"
echo "the secrets are in $directory; add keys of providers to $directory/providers.env (OPENAI_API_KEY=…)"
