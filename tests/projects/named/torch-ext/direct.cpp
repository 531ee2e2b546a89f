#define WRITTEN_(NAME) #NAME
#define WRITTEN(NAME) WRITTEN_(NAME)

__attribute__((used)) static const char direct[] = "direct:" WRITTEN(TORCH_EXTENSION_NAME);
