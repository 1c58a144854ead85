"""Amazon SNS and SQS, through boto3."""
