/** SQL of an engine for the value of a column, as a leaf has it. */
export interface LeafSqlDialect {
  /** JSON of a text or null. */
  readonly json: (column: string) => string
  /** JSON of a hash or null. */
  readonly hash: (column: string) => string
  /** A JSON object that is text already. */
  readonly object: (column: string) => string
  readonly stream: string
}

/**
 * SQL that makes the leaf of a row from its columns (docs/ledger.md#table): of version 2, which alone is stored so.
 */
export const leafSql = ({ json, hash, object, stream }: LeafSqlDialect): string =>
  `concat(${[
    ['action', json('action')],
    ['cert_thumbprint', hash('cert_thumbprint')],
    ['config_digest', hash('config_digest')],
    ['detail', object('detail')],
    ...['dpop_jkt', 'model'].map((name) => [name, json(name)]),
    ['prev_hash', hash('prev_hash')],
    ...['principal_id', 'principal_type', 'provider', 'recorded_at', 'request_id'].map((name) => [
      name,
      json(name),
    ]),
    ['seq', 'seq'],
    ['status', json('status')],
    ['stream', stream],
    ['tool', json('tool')],
    ['v', '2'],
    ['version', json('version')],
  ]
    .map(([name, value], index) => `'${index === 0 ? '{' : ','}"${name}":', ${value}`)
    .join(', ')}, '}')`
