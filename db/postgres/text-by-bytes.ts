import {
  type DataTypeNode,
  type KyselyPlugin,
  OperationNodeTransformer,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  sql,
} from 'kysely'

/**
 * Gives every text column of a migration the order of its bytes, as SQLite has it, whatever the database's own
 * order is: pages and slices rest on it, and an index in a language's order changes with the machine's libraries.
 */
export class BytewiseTextPlugin implements KyselyPlugin {
  readonly #transformer = new BytewiseTextTransformer()

  transformQuery({ node, queryId }: PluginTransformQueryArgs) {
    return this.#transformer.transformNode(node, queryId)
  }

  transformResult({ result }: PluginTransformResultArgs) {
    return Promise.resolve(result)
  }
}

const TEXT = sql`text collate "C"`.toOperationNode()

class BytewiseTextTransformer extends OperationNodeTransformer {
  protected override transformDataType(node: DataTypeNode): DataTypeNode {
    // A column's type may be raw; the transformer's own type says less than it takes.
    return node.dataType === 'text' ? (TEXT as unknown as DataTypeNode) : node
  }
}
