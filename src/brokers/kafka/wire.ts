/** What is asked of a broker and what it answers, as far as this adapter needs it. Every answer may hold error codes: see codes.ts. */
export interface Wire {
  metadata(topics: readonly string[] | null, create: boolean): MetadataAnswer;
  findCoordinator(kind: number, keys: readonly string[]): { readonly coordinators: readonly CoordinatorAnswer[] };
  produce(acks: number, timeoutMs: number, messages: readonly Message[], how: ProducedAs): ProduceAnswer;
  initProducerId(transactional: string | null, timeoutMs: number, id: bigint, epoch: number): ProducerIdAnswer;
  addPartitionsToTxn(transactions: readonly PartitionsOfTransaction[]): AddPartitionsAnswer;
  endTxn(transactional: string, id: bigint, epoch: number, commit: boolean): Coded;
  fetch(
    ...request: [
      ...[maxWaitMs: number, minBytes: number, maxBytes: number, isolation: number, session: number, sessionEpoch: number],
      ...[topics: readonly FetchTopic[], forgotten: readonly never[], rack: string],
    ]
  ): FetchAnswer;
  listOffsets(replica: number, isolation: number, topics: readonly ListOffsetsTopic[]): ListOffsetsAnswer;
  joinGroup(
    ...request: [
      ...[group: string, sessionMs: number, rebalanceMs: number, member: string, instance: null],
      ...[kind: string, protocols: readonly { readonly name: string; readonly metadata: Buffer }[]],
    ]
  ): JoinAnswer;
  syncGroup(
    ...request: [
      ...[group: string, generation: number, member: string, instance: null, kind: string, protocol: string],
      ...[assignments: readonly { readonly memberId: string; readonly assignment: Buffer }[]],
    ]
  ): Coded & { readonly assignment: Buffer };
  heartbeat(group: string, generation: number, member: string, instance: null): Coded;
  leaveGroup(group: string, members: readonly { readonly memberId: string }[]): Coded;
  offsetCommit(group: string, generation: number, member: string, instance: null, topics: readonly CommitTopic[]): CommitAnswer;
  offsetFetch(groups: readonly OffsetFetchGroup[], stable: boolean): OffsetFetchAnswer;
  deleteGroups(groups: readonly string[]): { readonly results: readonly Coded[] };
  createTopics(topics: readonly NewTopic[], timeoutMs: number, dry: boolean): { readonly topics: readonly NamedAnswer[] };
  deleteTopics(topics: readonly { readonly name: string }[], timeoutMs: number): { readonly responses: readonly DeletedTopic[] };
  describeConfigs(resources: readonly ConfigResource[], synonyms: boolean, documentation: boolean): ConfigsAnswer;
}

export interface Coded {
  readonly errorCode: number;
}

export interface NamedAnswer extends Coded {
  readonly name: string;
  readonly errorMessage: string | null;
}

export interface DeletedTopic extends Coded {
  readonly name: string | null;
  readonly errorMessage: string | null;
}

/** A message for a partition of a topic; headers may repeat. */
export interface Message {
  readonly topic: string;
  readonly partition: number;
  readonly timestamp: bigint;
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: ReadonlyMap<Buffer, Buffer>;
}

export interface ProducedAs {
  readonly producerId: bigint;
  readonly producerEpoch: number;
  /** The first sequence number of the batch for `topic:partition`. */
  readonly sequences: { getWithDefault(partition: string, otherwise: number): number };
  readonly transactionalId?: string;
}

export interface MetadataAnswer {
  readonly brokers: readonly { readonly nodeId: number; readonly host: string; readonly port: number }[];
  readonly topics: readonly (Coded & {
    readonly name: string | null;
    readonly topicId: string;
    readonly partitions: readonly (Coded & {
      readonly partitionIndex: number;
      readonly leaderId: number;
      readonly replicaNodes: readonly number[];
    })[];
  })[];
}

export interface CoordinatorAnswer extends Coded {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

export interface ProduceAnswer {
  readonly responses: readonly {
    readonly name: string;
    readonly partitionResponses: readonly (Coded & {
      readonly index: number;
      readonly errorMessage: string | null;
      readonly recordErrors: readonly { readonly batchIndex: number; readonly batchIndexErrorMessage: string | null }[];
    })[];
  }[];
}

export interface ProducerIdAnswer extends Coded {
  readonly producerId: bigint;
  readonly producerEpoch: number;
}

export interface PartitionsOfTransaction {
  readonly transactionalId: string;
  readonly producerId: bigint;
  readonly producerEpoch: number;
  readonly verifyOnly: boolean;
  readonly topics: readonly { readonly name: string; readonly partitions: readonly number[] }[];
}

export interface AddPartitionsAnswer {
  readonly resultsByTransaction: readonly {
    readonly topicResults: readonly { readonly resultsByPartition: readonly { readonly partitionErrorCode: number }[] }[];
  }[];
}

export interface FetchTopic {
  readonly topicId: string;
  readonly partitions: readonly {
    readonly partition: number;
    readonly currentLeaderEpoch: number;
    readonly fetchOffset: bigint;
    readonly lastFetchedEpoch: number;
    readonly partitionMaxBytes: number;
  }[];
}

export interface FetchAnswer extends Coded {
  readonly responses: readonly { readonly topicId: string; readonly partitions: readonly FetchedPartition[] }[];
}

export interface FetchedPartition extends Coded {
  readonly partitionIndex: number;
  /** What is committed ends here; -1 with an error. */
  readonly stableOffset: bigint;
  readonly abortedTransactions?: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[] | null;
  /** Batches: see batches.ts. */
  readonly records?: Buffer | null;
}

export interface ListOffsetsTopic {
  readonly name: string;
  readonly partitions: readonly { readonly partitionIndex: number; readonly currentLeaderEpoch: number; readonly timestamp: bigint }[];
}

export interface ListedPartition extends Coded {
  readonly partitionIndex: number;
  readonly timestamp: bigint;
  readonly offset: bigint;
}

export interface ListOffsetsAnswer {
  readonly topics: readonly { readonly partitions: readonly ListedPartition[] }[];
}

export interface JoinAnswer extends Coded {
  readonly generationId: number;
  readonly protocolName: string | null;
  readonly leader: string;
  readonly memberId: string | null;
  readonly members: readonly { readonly memberId: string; readonly metadata: Buffer | null }[];
}

export interface CommitTopic {
  readonly name: string;
  readonly partitions: readonly {
    readonly partitionIndex: number;
    readonly committedOffset: bigint;
    readonly committedLeaderEpoch: number;
    readonly committedMetadata: null;
  }[];
}

export interface CommitAnswer {
  readonly topics: readonly { readonly name: string; readonly partitions: readonly (Coded & { readonly partitionIndex: number })[] }[];
}

export interface OffsetFetchGroup {
  readonly groupId: string;
  readonly memberEpoch: number;
  readonly topics: readonly { readonly name: string; readonly partitionIndexes: readonly number[] }[];
}

export interface OffsetFetchAnswer {
  readonly groups: readonly (Coded & {
    readonly topics: readonly {
      readonly name: string;
      readonly partitions: readonly (Coded & { readonly partitionIndex: number; readonly committedOffset: bigint })[];
    }[];
  })[];
}

export interface NewTopic {
  readonly name: string;
  readonly numPartitions: number;
  readonly replicationFactor: number;
  readonly assignments: readonly never[];
  readonly configs: readonly { readonly name: string; readonly value: string }[];
}

export interface ConfigResource {
  readonly resourceType: number;
  readonly resourceName: string;
  readonly configurationKeys: readonly string[];
}

export interface ConfigsAnswer {
  readonly results: readonly (Coded & {
    readonly resourceType: number;
    readonly resourceName: string;
    readonly errorMessage: string | null;
    readonly configs: readonly { readonly name: string; readonly value: string | null }[];
  })[];
}
